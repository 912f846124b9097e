"""Online scheduling by benefit (benefit paper): `paper` has the published policies, `plus` has ours."""
