// Any bytes as what another rank sends in a compressed collective: blobs of zip, whole or cut, and
// payloads of taco. They decode or are refused; nothing else is read or written.
//
// The input: u8 choice, u16 elements (little-endian), the bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/fuzz/target.h"
#include "transport/collective/taco/coder.h"
#include "transport/collective/zip/coder.h"

namespace longhaul::collective {
namespace {

// A copy whose end is the end of its memory.
AlignedBuffer PaddedCopy(std::span<const std::byte> bytes, uint64_t size) {
  AlignedBuffer copy(size);
  const size_t filled = std::min<size_t>(bytes.size(), size);
  std::memset(copy.span().data(), 0, size);
  if (filled > 0) std::memcpy(copy.span().data(), bytes.data(), filled);
  return copy;
}

bool DecodesZip(uint8_t choice, uint64_t elements, std::span<const std::byte> bytes) {
  static const std::unique_ptr<Engine> engine = Engine::ForHost();
  const auto coder = zip::Coder::Create(engine.get()).value();
  // A receiver has room for the largest blob; a bounded exchange brings only its first bytes.
  const uint64_t most = zip::MostBytes(elements);
  if (most == 0) return false;
  const AlignedBuffer blob = PaddedCopy(bytes, most);
  const uint64_t came = (choice & 2) == 0 ? most : zip::StaticBytes(elements);
  uint64_t size_word = 0;
  std::memcpy(&size_word, zip::SizeWord(blob.span().data()), sizeof(size_word));
  const auto named = zip::BlobBytes(elements, size_word);
  if (named.ok() && *named > most) std::abort();
  AlignedBuffer out(2 * elements);
  const auto if_cut = (choice & 4) == 0 ? zip::IfCut::kIsFault : zip::IfCut::kLeave;
  const Status status =
      coder->Decode(blob.span().data(), came, elements, out.span().data(), if_cut, {});
  const Status fault = coder->TakeFault();
  if (!fault.ok() && (if_cut == zip::IfCut::kLeave || came == most)) std::abort();
  return status.ok() && fault.ok();
}

bool DecodesTaco(uint8_t choice, uint64_t elements, std::span<const std::byte> bytes) {
  static const std::unique_ptr<Engine> engine = Engine::ForHost();
  constexpr std::array kDtypes = {Dtype::kF32, Dtype::kF16, Dtype::kBf16};
  const codec::taco::Params params{.format = static_cast<codec::taco::Format>(1 + choice / 2 % 3),
                                   .block = codec::taco::kMinBlock << (choice / 8 % 5)};
  const Dtype dtype = kDtypes[choice / 64 % 3];
  const auto coder = taco::Coder::Create(engine.get(), params).value();
  const uint64_t size = coder->Bytes(elements);
  const AlignedBuffer one = PaddedCopy(bytes, size);
  const AlignedBuffer other = PaddedCopy(bytes.subspan(std::min<size_t>(bytes.size(), size)), size);
  AlignedBuffer out(elements * 4), sum(size);
  if (!coder->Decode(one.span().data(), elements, dtype, out.span().data(), {}).ok()) std::abort();
  const std::array<const void*, 2> parts = {one.span().data(), other.span().data()};
  // Whatever the parts are, the sum's payload decodes to what the owner has.
  if (!coder
           ->Reduce(parts, taco::Coder::kNoneIsOwn, elements, dtype, sum.span().data(),
                    out.span().data(), {})
           .ok()) {
    std::abort();
  }
  AlignedBuffer again(elements * 4);
  if (!coder->Decode(sum.span().data(), elements, dtype, again.span().data(), {}).ok()) {
    std::abort();
  }
  const size_t bytes_out = elements * (dtype == Dtype::kF32 ? 4 : 2);
  if (std::memcmp(again.span().data(), out.span().data(), bytes_out) != 0) std::abort();
  return true;
}

}  // namespace
}  // namespace longhaul::collective

LH_FUZZ_TARGET(collective_payload) {
  using namespace longhaul::collective;  // NOLINT(google-build-using-namespace)
  constexpr uint64_t kMostElements = 3000;
  if (size < 3) return false;
  const uint64_t elements = (data[1] | uint64_t{data[2]} << 8) % kMostElements;
  if (elements == 0) return false;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(3);
  return (data[0] & 1) == 0 ? DecodesZip(data[0], elements, bytes)
                            : DecodesTaco(data[0], elements, bytes);
}
