"""Command lines that must be refused, and the word their error must hold."""

SMALL = [
    "--problem",
    "gp",
    "--policies",
    "gp_ucb",
    "--horizon",
    "3",
    "--replicates",
    "1",
    "--option",
    "problem.num_arms=5",
]
BAD_COMMAND_LINES = [
    *((["--horizon", bad], "horizon") for bad in ("0", "-1", "1.5", "ten", "nan", "")),
    *((["--replicates", bad], "replicates") for bad in ("0", "-1", "1.5", "x")),
    *((["--seed", bad], "seed") for bad in ("-1", "0.5", "x")),
    *((["--threads", bad], "threads") for bad in ("0", "-1", "x")),
    *((["--device", bad], "device") for bad in ("gpu", "", "cpu:x", "cuda:99")),
    *((["--policies", bad], "polic") for bad in ("", ",", "nonsense", "gp_ucb,gp_ucb")),
    *((["--problem", bad], "problem") for bad in ("", "nonsense", "GP")),
    *((["--data", bad], "data") for bad in ("no/such/file.csv", ".")),
    *(
        (["--option", bad], "option")
        for bad in ("", "=", "x", "nonsense=1", "gp_ucb.nonsense=1", "nobody.delta=1", "=3")
    ),
    *(
        (["--option", f"gp_ucb.delta={bad}"], "delta")
        for bad in ("0", "1", "-1", "nan", "x", "none", "[1]", "true")
    ),
    *((["--option", f"gp_ucb.width={bad}"], "gp_ucb(width=") for bad in ("-1", "nan", "x", "[1]", "true")),
    *((["--option", f"gp_ucb.noise_variance={bad}"], "noise_variance") for bad in ("0", "-1", "nan", "x")),
    *((["--option", f"gp_ucb.form={bad}"], "form") for bad in ("fast", "1")),
    *((["--option", f"lengthscale={bad}"], "lengthscale") for bad in ("0", "-1", "nan", "inf", "x")),
    *((["--option", f"problem.noise_scale={bad}"], "noise_scale") for bad in ("-1", "nan", "x")),
    *((["--option", f"problem.layout={bad}"], "layout") for bad in ("ring", "1")),
    *((["--option", f"problem.dim={bad}"], "dim") for bad in ("0", "-1", "1.5", "x")),
]
