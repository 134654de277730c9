"""What a plan shall be good at besides flow, and the search for it: estimates to search by,
simulations to decide by. Above placers and the simulator; only compute_plan and commands
import it.
"""
