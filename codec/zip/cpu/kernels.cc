#include "codec/zip/cpu/kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "codec/parallel.h"
#include "codec/plain/cpu/kernels.h"
#include "codec/tile.h"
#include "codec/zip/format.h"

namespace longhaul::codec::zip::cpu {
namespace {

// In groups: what one thread does alone.
constexpr uint64_t kSmall = 64;
constexpr uint32_t kEight = 8;
constexpr uint32_t kRows = kGroup / kRow;

// A group's elements in bf16, zeros behind the last.
struct Elements {
  alignas(64) std::array<uint16_t, kGroup> bits;
  uint32_t count = 0;
};

// The bits of one lane, row by row, 8 of each.
using LaneMask = uint32_t;

const std::byte* At(const TensorView& in, uint64_t element) {
  return static_cast<const std::byte*>(in.data) + element * BytesPerElement(in.dtype);
}

bool IsFinite(uint16_t bits) {
  return (bits & 0x7f80) != 0x7f80;
}

uint64_t NonFiniteIn(const uint16_t* bits, uint64_t count) {
  return static_cast<uint64_t>(
      std::count_if(bits, bits + count, [](uint16_t one) { return !IsFinite(one); }));
}

// Gives how many are not finite in bf16.
uint64_t Load(const TensorView& in, uint64_t group, Elements* elements) {
  const uint64_t first = group * kGroup;
  elements->count = static_cast<uint32_t>(std::min<uint64_t>(kGroup, in.shape.elements() - first));
  plain::cpu::Encode({At(in, first), in.dtype, {1, 1, elements->count}}, Dtype::kBf16, nullptr,
                     reinterpret_cast<std::byte*>(elements->bits.data()));
  std::fill(elements->bits.begin() + elements->count, elements->bits.end(), uint16_t{0});
  return NonFiniteIn(elements->bits.data(), elements->count);
}

uint8_t ExponentOf(uint16_t bits) {
  return static_cast<uint8_t>(bits >> 7);
}

uint32_t LowOf(const Elements& elements) {
  std::array<uint8_t, kLanes> largest{};
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint16_t* const eight = &elements.bits[row * kRow + lane * kEight];
      uint16_t most = 0;
      for (uint32_t k = 0; k < kEight; ++k) {
        most = std::max(most, static_cast<uint16_t>(eight[k] & 0x7fff));
      }
      largest[lane] = std::max(largest[lane], ExponentOf(most));
    }
  }
  std::ranges::nth_element(largest, largest.begin() + kLanesAtTop - 1, std::ranges::greater());
  const uint32_t top = largest[kLanesAtTop - 1];
  return top - std::min(top, kWindow - 1);
}

// The lowest bits of 8 bytes, that of the first one lowest.
uint8_t GatherBits(uint64_t bytes) {
  return static_cast<uint8_t>((bytes & 0x0101010101010101) * 0x0102040810204080 >> 56);
}

// The other way round: bit k to byte k.
constexpr std::array<uint64_t, 256> SpreadTable() {
  std::array<uint64_t, 256> table{};
  for (uint32_t bits = 0; bits < 256; ++bits) {
    for (uint32_t k = 0; k < kEight; ++k) {
      table[bits] |= static_cast<uint64_t>(bits >> k & 1) << 8 * k;
    }
  }
  return table;
}
constexpr std::array<uint64_t, 256> kSpread = SpreadTable();

struct Sections {
  Sections(const Layout& of, std::byte* payload)
      : layout(of),
        starts(payload),
        lows(reinterpret_cast<uint8_t*>(payload + of.lows)),
        signs(reinterpret_cast<uint8_t*>(payload + of.signs)),
        codes(reinterpret_cast<uint8_t*>(payload + of.codes)),
        escapes(reinterpret_cast<uint8_t*>(payload + of.escapes)) {}

  uint32_t Start(uint64_t group) const {
    uint32_t start = 0;
    std::memcpy(&start, starts + 4 * group, sizeof(start));
    return start;
  }
  void SetStart(uint64_t group, uint32_t start) const {
    std::memcpy(starts + 4 * group, &start, sizeof(start));
  }
  const uint8_t* Plane(uint32_t plane, uint64_t group) const {
    return codes + plane * layout.plane_bytes + group * (kGroup / kEight);
  }
  uint8_t* Plane(uint32_t plane, uint64_t group) {
    return codes + plane * layout.plane_bytes + group * (kGroup / kEight);
  }
  // The lanes of a group with `count` elements that have code 0.
  std::array<LaneMask, kLanes> Escaped(uint64_t group, uint32_t count) const {
    const uint32_t bytes = (count + kEight - 1) / kEight;
    std::array<LaneMask, kLanes> escaped{};
    for (uint32_t k = 0; k < bytes; ++k) {
      auto zero =
          static_cast<uint8_t>(~(Plane(0, group)[k] | Plane(1, group)[k] | Plane(2, group)[k]));
      if (k + 1 == bytes && count % kEight != 0)
        zero &= static_cast<uint8_t>((1u << count % kEight) - 1);
      escaped[k % kLanes] |= static_cast<LaneMask>(zero) << kEight * (k / kLanes);
    }
    return escaped;
  }

  const Layout& layout;
  std::byte* const starts;
  uint8_t *const lows, *const signs, *const codes, *const escapes;
};

// Where bit `bit` of a lane's mask stands in the group.
uint32_t PlaceOf(uint32_t lane, uint32_t bit) {
  return bit / kEight * kRow + lane * kEight + bit % kEight;
}

uint32_t CountOf(const std::array<LaneMask, kLanes>& escaped) {
  uint32_t count = 0;
  for (const LaneMask mask : escaped) count += static_cast<uint32_t>(std::popcount(mask));
  return count;
}

uint32_t ElementsIn(uint64_t group, uint64_t elements) {
  return static_cast<uint32_t>(std::min<uint64_t>(kGroup, elements - group * kGroup));
}

// All but the starts and escapes; the group's escapes to the place of its start.
void EncodeGroup(const Elements& elements, uint64_t group, Sections* sections) {
  const uint32_t low = LowOf(elements);
  sections->lows[group] = static_cast<uint8_t>(low);
  uint8_t* const signs = sections->signs + group * kGroup;
  alignas(64) std::array<uint8_t, kGroup> codes;
  for (uint32_t k = 0; k < kGroup; ++k) {
    const uint32_t bits = elements.bits[k];
    const uint32_t code = ExponentOf(elements.bits[k]) - low;
    codes[k] = static_cast<uint8_t>(code < kWindow ? code + 1 : 0);
    if (k < elements.count) signs[k] = static_cast<uint8_t>((bits >> 8 & 0x80) | (bits & 0x7f));
  }
  // Behind the last element nothing is written.
  std::fill(codes.begin() + elements.count, codes.end(), uint8_t{0});
  const uint32_t bytes = (elements.count + kEight - 1) / kEight;
  for (uint32_t k = 0; k < bytes; ++k) {
    uint64_t eight = 0;
    std::memcpy(&eight, &codes[k * kEight], sizeof(eight));
    for (uint32_t plane = 0; plane < kPlanes; ++plane) {
      sections->Plane(plane, group)[k] = GatherBits(eight >> plane);
    }
  }
  sections->SetStart(group, CountOf(sections->Escaped(group, elements.count)));
}

// From escapes of each group to those of all before. Gives all.
uint64_t AddUp(const Sections& sections) {
  uint64_t sum = 0;
  for (uint64_t group = 0; group < sections.layout.groups; ++group) {
    const uint32_t own = sections.Start(group);
    sections.SetStart(group, static_cast<uint32_t>(sum));
    sum += own;
  }
  sections.SetStart(sections.layout.groups, static_cast<uint32_t>(sum));
  return sum;
}

uint16_t Bf16At(const TensorView& in, uint64_t element) {
  uint16_t bits = 0;
  plain::cpu::Encode({At(in, element), in.dtype, {1, 1, 1}}, Dtype::kBf16, nullptr,
                     reinterpret_cast<std::byte*>(&bits));
  return bits;
}

void WriteEscapes(const TensorView& in, uint64_t group, const Sections& sections) {
  uint8_t* out = sections.escapes + sections.Start(group);
  const auto escaped = sections.Escaped(group, ElementsIn(group, in.shape.elements()));
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (LaneMask mask = escaped[lane]; mask != 0; mask &= mask - 1) {
      const auto bit = static_cast<uint32_t>(std::countr_zero(mask));
      *out++ = ExponentOf(Bf16At(in, group * kGroup + PlaceOf(lane, bit)));
    }
  }
}

void ZeroPaddings(const Layout& layout, uint64_t elements, std::byte* payload) {
  const auto zero = [payload](uint64_t from, uint64_t to) {
    std::memset(payload + from, 0, to - from);
  };
  zero(4 * (layout.groups + 1), layout.lows);
  zero(layout.lows + layout.groups, layout.signs);
  zero(layout.signs + elements, layout.codes);
  for (uint64_t plane = 0; plane < kPlanes; ++plane) {
    const uint64_t begin = layout.codes + plane * layout.plane_bytes;
    zero(begin + (elements + 7) / 8, begin + layout.plane_bytes);
  }
}

// False: its codes have other escapes than the starts say.
bool DecodeGroup(const Sections& sections, uint64_t group, const MutableTensorView& out) {
  const uint32_t count = ElementsIn(group, out.shape.elements());
  const auto escaped = sections.Escaped(group, count);
  const uint32_t start = sections.Start(group), end = sections.Start(group + 1);
  if (end < start || end - start != CountOf(escaped)) return false;
  const uint32_t low = sections.lows[group];
  const uint8_t* const signs = sections.signs + group * kGroup;
  alignas(64) std::array<uint8_t, kGroup> exponents;
  for (uint32_t k = 0; k < (count + kEight - 1) / kEight; ++k) {
    const uint64_t codes = kSpread[sections.Plane(0, group)[k]] |
                           kSpread[sections.Plane(1, group)[k]] << 1 |
                           kSpread[sections.Plane(2, group)[k]] << 2;
    std::memcpy(&exponents[k * kEight], &codes, sizeof(codes));
  }
  // A code of 0 becomes any exponent: its escape takes the place.
  for (uint32_t k = 0; k < count; ++k) exponents[k] = static_cast<uint8_t>(exponents[k] + low - 1);
  const uint8_t* from = sections.escapes + start;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (LaneMask mask = escaped[lane]; mask != 0; mask &= mask - 1) {
      exponents[PlaceOf(lane, static_cast<uint32_t>(std::countr_zero(mask)))] = *from++;
    }
  }
  alignas(64) std::array<uint16_t, kGroup> bits;
  for (uint32_t k = 0; k < count; ++k) {
    bits[k] = static_cast<uint16_t>((signs[k] & 0x80) << 8 | exponents[k] << 7 | (signs[k] & 0x7f));
  }
  plain::cpu::Decode(
      reinterpret_cast<const std::byte*>(bits.data()), Dtype::kBf16, nullptr,
      {static_cast<std::byte*>(out.data) + group * kGroup * BytesPerElement(out.dtype),
       out.dtype,
       {1, 1, count}});
  return true;
}

}  // namespace

uint64_t Encode(const TensorView& in, Parallel* parallel, std::byte* payload, uint64_t* nonfinite) {
  const uint64_t elements = in.shape.elements();
  const Layout layout = MakeLayout(elements);
  if (!layout.may_be_smaller) {
    plain::cpu::Encode(in, Dtype::kBf16, parallel, payload);
    for (uint64_t k = 0; k < elements; ++k) {
      *nonfinite += IsFinite(LoadU16(payload + 2 * k)) ? 0 : 1;  // they are few
    }
    return layout.raw;
  }
  Sections sections(layout, payload);
  std::atomic<uint64_t> found = 0;
  ForRanges(parallel, layout.groups, 1, kSmall, [&](uint64_t first, uint64_t end) {
    Elements group_elements;
    uint64_t here = 0;
    for (uint64_t group = first; group < end; ++group) {
      here += Load(in, group, &group_elements);
      EncodeGroup(group_elements, group, &sections);
    }
    found += here;
  });
  *nonfinite += found;
  const uint64_t escapes = AddUp(sections);
  if (PayloadBytes(layout, escapes) == layout.raw) {
    plain::cpu::Encode(in, Dtype::kBf16, parallel, payload);
    return layout.raw;
  }
  ZeroPaddings(layout, elements, payload);
  ForRanges(parallel, layout.groups, 1, kSmall, [&](uint64_t first, uint64_t end) {
    for (uint64_t group = first; group < end; ++group) WriteEscapes(in, group, sections);
  });
  std::memset(sections.escapes + escapes, 0, AlignSection(escapes) - escapes);
  return PayloadBytes(layout, escapes);
}

Status Decode(std::span<const std::byte> payload, Parallel* parallel,
              const MutableTensorView& out) {
  const Layout layout = MakeLayout(out.shape.elements());
  if (payload.size() == layout.raw) {
    plain::cpu::Decode(payload.data(), Dtype::kBf16, parallel, out);
    return absl::OkStatus();
  }
  if (!layout.may_be_smaller || payload.size() < layout.escapes) {
    return InvalidArgument("expected a payload of zip of {} bytes, or of {} to {}, got {}",
                           layout.raw, layout.may_be_smaller ? layout.escapes : layout.raw,
                           layout.raw, payload.size());
  }
  // Only read.
  const Sections sections(layout, const_cast<std::byte*>(payload.data()));
  const uint64_t escapes = sections.Start(layout.groups);
  if (sections.Start(0) != 0 || payload.size() != PayloadBytes(layout, escapes)) {
    return InvalidArgument("expected the blob's {} escapes in {} bytes of payload, got {}", escapes,
                           PayloadBytes(layout, escapes), payload.size());
  }
  // Each group's escapes lie between its start and the next, which are in order, or it is refused
  // before any is read; but the starts before it may be wrong, so each is held against the end.
  std::atomic<bool> bad = false;
  ForRanges(parallel, layout.groups, 1, kSmall, [&](uint64_t first, uint64_t end) {
    for (uint64_t group = first; group < end; ++group) {
      if (sections.Start(group + 1) > escapes || !DecodeGroup(sections, group, out)) bad = true;
    }
  });
  if (bad) {
    return absl::InvalidArgumentError("the blob's codes have other escapes than it says");
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::zip::cpu
