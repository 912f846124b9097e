from hypothesis import settings

#: Random traces that each policy is compared on.
TRACES = 200 if settings.get_current_profile_name() == "long" else 5
