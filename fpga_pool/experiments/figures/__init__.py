"""The figures of the papers, made again by the code that runs in the cloud.

===========  ==========================================================================================================
`figure`     what a figure is: panels, samples, what the paper says of it
`run`        one experiment after the other, the same seeds for all policies
`report`     CSV, JSON and tables
`picture`    pictures, where matplotlib is installed
`command`    the command line
`makespan`   figures 2 to 9 of the makespan paper
`benefit`    figures 3 and 4 of the benefit paper, and what they hang on
`gangs`      figures 6 to 14 of the two-tier paper, and two more workloads
===========  ==========================================================================================================
"""
