// A library that is not longhaul's CUDA module.
extern "C" int SomethingElse() {
  return 1;
}
