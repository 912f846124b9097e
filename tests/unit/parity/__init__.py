from hypothesis import settings

#: Random traces that each policy is compared on.
TRACES = 100 if settings.get_current_profile_name() == "long" else 5
