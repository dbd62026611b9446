"""Continuous dynamic functions: our recipes with learned hyperparameters against plain BoTorch and W-DBO."""
