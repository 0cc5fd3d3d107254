"""Where AERA meets other frameworks. Nothing here is needed by anything else."""
