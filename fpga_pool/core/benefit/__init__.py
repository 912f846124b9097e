"""Which jobs deserve the slots, online (benefit paper): `paper` has the published policies, `plus` ours."""
