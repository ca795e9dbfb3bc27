import numpy as np, pytest, itertools
from augment_cases import MIX_RECORD, pack
from normalize_cases import image_net
from specs import *
def recs(what, n, rng):
    mix = np.zeros(n, MIX_RECORD); mix["own"], mix["partner"] = np.arange(n), np.arange(n)[::-1]; mix["own_weight"]=1
    boxes = np.zeros((n,1,4), np.int32); fill, blend = ZERO, OF_FLOATS
    if what.startswith("mixup"):
        mix["own_weight"], mix["partner_weight"] = .7,.3
        blend = OF_BYTES if "bytes" in what else OF_FLOATS
    elif what=="cutmix": mix["cut"]=(50,160,60,170)
    elif what.startswith("erase"):
        mix["boxes"]=1; boxes[:,0]=(50,120,60,130); fill={"const":ZERO,"rand":PER_BOX,"pixel":PER_ELEMENT}[what.split()[1]]; blend=OF_BYTES
    return pack(int(rng.integers(0,2**63)), mix, boxes), fill, blend
def test_count(device, rng):
    for size in ((4,224,224),(4,225,225)):
      for kind in KINDS:
        if kind.channels!=3 or kind.type==2: continue
        row=[]
        for what in ("nothing","mixup floats","mixup bytes","cutmix","erase const","erase rand", "erase pixel"):
            n=size[0]
            r, fill, blend = recs(what, n, rng)
            spec = augment_spec(image_net(kind, size), 1, fill, blend)
            src = rng.integers(0,256,spec.normalize.values,dtype=np.uint8)
            device.augment(spec, r, src)
            row.append(f"{what} {device.executed*32/spec.normalize.values:.1f}")
        print(size, kind, row, flush=True)
