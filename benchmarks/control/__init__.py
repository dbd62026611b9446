"""Tests against a control under a level that is common to all arms."""
