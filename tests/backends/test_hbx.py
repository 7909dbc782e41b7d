from tests.backends.test_products import *
def test_x():
    with torch.no_grad():
            c=pliant.compile(LINEARS['plain'],backend=llvm,dynamic=False)
            for m in [three((5,4),(6,4),(6,)),three((2,3,4),(6,4),(6,))]: c(*m())
