"""The files of a room, for ``python -m tests.mutation --room ROOM``, and the fast tests that should notice a change.

tests/MUTATION.md has the samples that were taken.
"""

_OPKB = "policies/test_opkb_from_the_paper.py"
_PROBLEMS = "problems/test_problem_steps.py"

# Room: file in ``bandits_torch/`` to tests in ``tests/``, each a list of words.
ROOMS: dict[str, dict[str, str]] = {
    "designs": {
        "theory/optimal_design.py": "theory/test_optimal_design.py theory/test_inverse_propensity.py",
    },
    "kernels": {
        "kernels/arms.py": "kernels/test_arm_covariance.py kernels/test_contextual_kernels.py policies/test_neural.py",
        "kernels/composed.py": "kernels/test_spatio_temporal.py kernels/test_contextual_kernels.py "
        "models/test_botorch_paths.py models/test_hyperparameters.py",
        "kernels/smooth_time.py": "kernels/test_smooth_time.py",
        "kernels/state_space.py": "kernels/test_smooth_time.py models/test_state_space_arms.py",
        "kernels/temporal.py": "kernels/test_temporal.py",
    },
    "policies": {
        "state.py": "test_state.py policies/test_index_state.py",
        "policies/opkb/opkb.py": f"{_OPKB} policies/test_opkb.py",
        "policies/opkb/constants.py": f"{_OPKB} policies/test_opkb.py policies/test_reward_units.py",
        "policies/opkb/calibrated.py": "policies/test_calibrated_opkb.py",
        "policies/opkb/epochs.py": f"{_OPKB} policies/test_opkb.py policies/test_reward_units.py",
        "policies/opkb/features.py": f"{_OPKB} policies/test_opkb.py policies/test_neural.py",
        "policies/averaging.py": "policies/test_averaging.py",
        "policies/sharing.py": "policies/test_averaging.py claims/test_fixed_share_bound.py",
        "policies/learned_units.py": "policies/test_averaging.py policies/test_point_averaging.py",
        "policies/reward_range.py": "policies/test_reward_range.py",
        "policies/over_priors.py": "policies/test_unknown_prior.py policies/test_length_scales.py",
        "policies/forgetting.py": "policies/test_forgetting.py policies/test_likelihood_window.py",
        "policies/index.py": "policies/test_index.py policies/test_index_state.py policies/test_improvement.py",
        "policies/wrapping.py": "policies/test_doubling.py policies/test_standardised.py",
        "policies/master.py": "policies/test_master.py",
        "policies/phased_elimination.py": "policies/test_phased_elimination.py",
        "policies/regret_balancing.py": "policies/test_regret_balancing.py",
    },
    "problems": {
        "problems/continuous.py": "problems/test_dynamic_functions.py",
        "problems/drifting.py": f"problems/test_drifting.py {_PROBLEMS}",
        "problems/forgetting_fit.py": "problems/test_forgetting_fit.py problems/test_joint_fit.py",
        "problems/many_arms.py": "problems/test_many_arms.py",
        "problems/problem.py": "problems/test_scoring.py",
        "problems/simulated.py": f"problems/test_synthetic.py problems/test_drifting.py {_PROBLEMS}",
        "problems/stationary.py": f"problems/test_synthetic.py problems/test_hills.py {_PROBLEMS}",
        "problems/tv_gp.py": f"problems/test_drifting.py {_PROBLEMS}",
    },
}
