"""Operations on plan runs and plans; views and the REST API call these functions."""
