"""What is open, selected and set; what each view shows. Observable, without Qt."""
