"""Xopt with our models and with its own, on a beam line in Cheetah that drifts."""
