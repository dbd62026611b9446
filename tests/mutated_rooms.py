"""The files of a room, for ``python -m tests.mutation --room ROOM``, and the fast tests that should notice a change.

tests/MUTATION.md has the samples that were taken.
"""

_OPKB = "policies/test_opkb_from_the_paper.py"
_PROBLEMS = "problems/test_problem_steps.py problems/test_problem_contract.py"


def _laws(*names: str) -> str:
    """The laws of all recipes, of these."""
    alone = "test_reproducible.py::test_a_replicate_of_25_is_the_replicate_alone"
    resumed = "test_resume_bits.py::test_every_recipe_resumes_bit_for_bit_at_every_stop"
    anew = "test_testing.py::test_every_recipe_begins_anew_where_it_is_told_to"
    return " ".join(
        f"{alone}[{name}] {resumed}[{name}] {anew}[{name}-False] {anew}[{name}-True]" for name in names
    )


_ARMS = "models/test_laws.py models/test_attack_models.py " + " ".join(
    f"models/test_arm_gp_{what}.py" for what in ("posterior", "exact")
)
_POINTS = "models/test_laws.py models/test_attack_models.py " + " ".join(
    f"models/test_{what}.py" for what in ("online_gp", "padded_factor")
)
# Room: file in ``bandits_torch/`` to tests in ``tests/``, each a list of words.
ROOMS: dict[str, dict[str, str]] = {
    "designs": {"theory/optimal_design.py": "theory/test_optimal_design.py"},
    "kernels": {
        "kernels/arms.py": "models/test_refused_by_name.py kernels/test_arm_covariance.py "
        "policies/test_neural.py",
        "kernels/composed.py": "kernels/test_temporal.py kernels/test_arm_covariance.py "
        "models/test_botorch_calls.py models/test_hyperparameters.py",
        "kernels/state_space.py": "kernels/test_smooth_time.py models/test_state_space_arms.py",
        "kernels/temporal.py": "models/test_refused_by_name.py kernels/test_temporal.py kernels/test_smooth_time.py",
    },
    "models": {
        **{
            f"models/arms/{name}.py": _ARMS for name in ("arm_gp", "belief", "covariance_form", "factor_form")
        },
        **{f"models/points/{name}.py": _POINTS for name in ("online_gp", "growing_cholesky")},
        **{f"models/arms/{name}.py": "models/test_members.py" for name in ("members", "structured_members")},
        "models/arms/state_space.py": "models/test_laws.py models/test_state_space_arms.py",
        "models/arms/weighted_gp.py": "models/test_laws.py models/test_attack_models.py models/test_weighted_gp.py",
        "models/online_model.py": f"{_ARMS} test_botorch_loop.py",
        "models/sketch/sketched_gp.py": "models/test_laws.py models/test_sketched_gp.py",
        "models/sketch/sketch.py": "models/test_attack_models.py models/test_sketched_gp.py "
        "policies/test_bkb_from_the_paper.py",
    },
    "policies": {
        "state.py": f"test_state.py policies/test_index.py {_laws('ucb1', 'gp_ucb')}",
        "policies/opkb/opkb.py": f"{_OPKB} policies/test_opkb.py policies/test_reward_units.py "
        + _laws("ada_opkb", "ada_opkb-units"),
        "policies/opkb/calibrated.py": f"policies/test_calibrated_opkb.py {_laws('ada_opkb_calibrated')}",
        "policies/opkb/features.py": f"{_OPKB} policies/test_opkb.py policies/test_neural.py",
        "policies/averaging.py": "policies/test_averaging.py policies/test_choose_many.py",
        "policies/sharing.py": "policies/test_averaging.py claims/test_fixed_share_bound.py",
        "policies/learned_units.py": "policies/test_averaging.py policies/test_point_averaging.py",
        "policies/reward_range.py": "policies/test_reward_range.py policies/test_averaging.py",
        "policies/over_priors.py": f"policies/test_unknown_prior.py {_laws('pe_gp_ucb')} "
        f"policies/test_regret_balancing.py {_laws('regret_balancing')} "
        f"policies/test_length_scales.py {_laws('a_gp_ucb')} policies/test_learning.py",
        "policies/forgetting.py": "policies/test_forgetting.py policies/test_likelihood_window.py test_watch_alarms.py "
        + _laws("sw_gp_ucb", "r_gp_ucb", "et_gp_ucb", "sw_gp_ucb-likelihood"),
        "policies/index.py": f"policies/test_index.py {_laws('gp_ucb')} policies/test_improvement.py test_ask_tell.py",
        "policies/wrapping.py": "policies/test_doubling.py policies/test_standardised.py",
        "policies/detection.py": f"policies/test_master.py {_laws('master_gp_ucb')}",
        "policies/batches.py": f"policies/test_phased_elimination.py {_laws('r_perp')}",
        "policies/classical/policies.py": "policies/test_classical.py policies/test_detection.py "
        + _laws("discounted_ts", "glr_kl_ucb", "exp3_s"),
        "policies/safe.py": f"policies/test_safe.py {_laws('safe_opt')}",
        "policies/moves.py": "policies/test_moves.py",
        "policies/control.py": "test_control.py",
        "policies/counted.py": "test_ask_tell_rewards.py",
        "policies/looking_again.py": "policies/test_looking_again.py",
        "policies/point_averaging.py": "policies/test_point_averaging.py policies/test_continuous.py",
        "policies/stale_observations.py": "policies/test_stale_observations.py policies/test_wasserstein_forgetting.py",
        "policies/choices/arms.py": "policies/test_index.py policies/test_choose_many.py test_loop.py",
        "policies/choices/contexts.py": "policies/test_contextual.py policies/test_context_averaging.py",
        "policies/choices/points.py": "policies/test_continuous.py",
    },
    "problems": {
        "problems/continuous.py": "problems/test_dynamic_functions.py",
        "problems/drifting.py": f"problems/test_drifting.py {_PROBLEMS}",
        "problems/forgetting_fit.py": "problems/test_forgetting_fit.py problems/test_joint_fit.py",
        "problems/diagnosis.py": "problems/test_diagnosis.py",
        "problems/jumps.py": "problems/test_jumps.py",
        "problems/logs.py": "test_off_policy.py",
        "problems/periods.py": "problems/test_periods.py",
        "problems/problem.py": "problems/test_scoring.py",
        "problems/replay.py": "problems/test_replay.py",
        "problems/simulated.py": "problems/test_synthetic.py problems/test_drifting.py problems/test_hills.py "
        f"problems/test_many_arms.py {_PROBLEMS}",
        "problems/table_files.py": "problems/test_tables.py problems/test_odd_tables.py",
        "problems/tables.py": "problems/test_tables.py problems/test_odd_tables.py",
        "problems/tv_gp.py": f"problems/test_drifting.py problems/test_many_arms.py {_PROBLEMS}",
    },
}
