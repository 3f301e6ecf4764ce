// Preloaded into a worker, makes it compute wrongly, as a broken device does: its cosine is off by
// a thousandth, and so are its learning rates.
#include <cmath>

extern "C" double cos(double angle) noexcept {
  double sine = 0, cosine = 0;
  ::sincos(angle, &sine, &cosine);
  return cosine + 1e-3;
}
