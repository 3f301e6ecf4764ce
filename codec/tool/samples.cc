#include "codec/tool/samples.h"

#include <array>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/philox.h"
#include "codec/tool/files.h"

namespace longhaul::codec {
namespace {

constexpr Shape kShape{1, 256, 1024};

// Independent standard normal numbers, four an element.
class Normals {
 public:
  explicit Normals(uint64_t seed)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  std::array<double, 4> Of(uint64_t element) const {
    const Philox::Counter words = Philox::Generate(
        {static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32), 0, 0}, key_);
    std::array<double, 4> result{};
    for (size_t k = 0; k < 4; k += 2) {  // Box and Muller
      const double radius = std::sqrt(-2 * std::log((words[k] + 0.5) * 0x1p-32));
      const double angle = 2 * std::numbers::pi * words[k + 1] * 0x1p-32;
      result[k] = radius * std::cos(angle);
      result[k + 1] = radius * std::sin(angle);
    }
    return result;
  }

 private:
  Philox::Key key_;
};

StatusOr<Sample> Make(std::string name, const std::function<double(uint64_t)>& value) {
  Sample sample{.name = std::move(name)};
  LH_ASSIGN_OR_RETURN(sample.array, MakeArray(Dtype::kF32, kShape));
  auto* values = reinterpret_cast<float*>(sample.array.data.span().data());
  for (uint64_t k = 0; k < kShape.elements(); ++k) values[k] = static_cast<float>(value(k));
  return sample;
}

StatusOr<std::vector<Sample>> Synthetic(uint64_t seed) {
  const Normals normals(seed);
  std::vector<Sample> samples(3);
  LH_ASSIGN_OR_RETURN(samples[0], Make("gaussian", [&](uint64_t k) { return normals.Of(k)[0]; }));
  LH_ASSIGN_OR_RETURN(samples[1], Make("student-t-3", [&](uint64_t k) {
                        const auto [z, a, b, c] = normals.Of(k);
                        return z / std::sqrt((a * a + b * b + c * c) / 3);
                      }));
  LH_ASSIGN_OR_RETURN(samples[2], Make("outlier-channels", [&](uint64_t k) {
                        return normals.Of(k)[0] * (k % kShape.channels % 100 == 17 ? 30 : 1);
                      }));
  return samples;
}

}  // namespace

StatusOr<std::vector<Sample>> SamplesOf(const ToolOptions& options) {
  if (options.inputs.empty()) return Synthetic(options.seed);
  std::vector<Sample> samples;
  for (const std::string& path : options.inputs) {
    LH_ASSIGN_OR_RETURN(NpyArray array, ReadInput(path, options.dtype));
    if (array.shape.elements() == 0) {
      return InvalidArgument("{}: expected an array with elements; it has none", path);
    }
    samples.push_back({path, std::move(array)});
  }
  return samples;
}

}  // namespace longhaul::codec
