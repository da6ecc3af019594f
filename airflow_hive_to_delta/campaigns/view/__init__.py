"""What people see of a campaign: its page in Airflow and its report say the same, in the same words and colours."""
