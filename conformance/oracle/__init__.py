"""The oracle: is the backend's result right, given what eager and the float64 run of the same program say?"""
