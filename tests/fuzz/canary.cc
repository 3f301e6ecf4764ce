// A defect that was planted: behind a magic, a length is trusted, and so a byte behind the input is
// read. Only a fuzzer that follows coverage gets past the magic, and only AddressSanitizer sees the
// read. Where this is not found, nothing that the other targets say counts.
#include <cstring>
#include <vector>

#include "base/fuzz/target.h"

LH_FUZZ_TARGET(canary) {
  constexpr char kMagic[] = {'L', 'H', 'T', 'N'};
  if (size < 6) return false;
  for (size_t k = 0; k < sizeof(kMagic); ++k) {
    if (data[k] != static_cast<uint8_t>(kMagic[k])) return false;
  }
  const std::vector<uint8_t> payload(data + 5, data + size);
  const size_t claimed = data[4];
  uint8_t sum = 0;
  for (size_t k = 0; k < claimed; ++k) sum = static_cast<uint8_t>(sum + payload.data()[k]);
  return sum != 1;
}
