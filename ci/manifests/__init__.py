"""Plans as the jobs of a cluster's own scheduler: Kubernetes and Slurm."""
