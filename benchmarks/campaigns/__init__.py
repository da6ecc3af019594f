"""What campaigns of thousands of tables cost: by simulation, in Airflow's own scheduler, and on the page."""
