"""Which jobs deserve the slots, online (paper 003): `paper` has the published policies, `plus` ours."""
