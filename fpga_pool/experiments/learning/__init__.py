"""Training and evaluation of the policy `learned` on simulated clusters."""
