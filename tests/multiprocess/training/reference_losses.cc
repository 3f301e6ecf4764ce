// reference_losses RUN.yaml TEXT STEPS [MICROBATCHES...]: trains with the plain unpipelined loop
// and prints a loss a line, 17 significant digits, to compare with `longhaul steps --json` bit by
// bit. MICROBATCHES: of each step, the last one of all that follow, instead of the run file's.
#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "codec/registry.h"
#include "run/file/run_spec.h"
#include "run/tokens/token_file.h"
#include "tests/support/reference_loop.h"

int main(int argc, char** argv) {
  using namespace longhaul;
  if (argc < 4) {
    fmt::print(stderr, "usage: reference_losses RUN.yaml TEXT STEPS [MICROBATCHES...]\n");
    return 2;
  }
  const auto fail = [](const Status& status) {
    fmt::print(stderr, "reference_losses: {}\n", Message(status));
    return 1;
  };
  const auto yaml = ReadFile(argv[1]);
  if (!yaml.ok()) return fail(yaml.status());
  auto spec = ParseRunSpec(*yaml, argv[1], {});
  if (!spec.ok()) return fail(spec.status());
  // As a plan settles it for CPUs.
  if (spec->train.dtype == ComputeDtype::kAuto) spec->train.dtype = ComputeDtype::kFp32;
  const std::string tokens = std::string(argv[2]) + ".reference-tokens";
  const auto info = WriteTokenFile({argv[2]}, spec->data.tokenizer, spec->validation.share, tokens);
  if (!info.ok()) return fail(info.status());
  std::vector<uint32_t> microbatches;
  for (int i = 4; i < argc; ++i) {
    microbatches.push_back(static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  }
  const auto losses =
      testing::ReferenceLosses(*spec, tokens, std::strtoull(argv[3], nullptr, 10), microbatches);
  if (!losses.ok()) return fail(losses.status());
  for (const double loss : *losses) fmt::print("{:.17g}\n", loss);
  return 0;
}
