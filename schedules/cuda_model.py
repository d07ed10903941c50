from dataclasses import dataclass
WARP = 32
@dataclass(frozen=True)
class Tile:
    warps_m: int
    warps_n: int
    row_fragments: tuple
    column_fragments: tuple
    steps: tuple
    stages: int
    @property
    def warps(self): return self.warps_m*self.warps_n
def tiles(gemm, target):
    return [Tile(2,2,(4,2),(4,2),(2,),4)]
