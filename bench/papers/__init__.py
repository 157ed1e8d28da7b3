"""The tables and figures of the papers, on recorded trainings."""
