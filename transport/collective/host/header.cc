#include "transport/collective/host/header.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace longhaul::collective::host {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are little-endian");

constexpr uint32_t kMagic = 0x3158484c;  // "LHX1"

template <class T>
void Put(std::span<std::byte> bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

template <class T>
T Get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

std::array<std::byte, kHelloBytes> EncodeHello(std::string_view secret, uint32_t rank) {
  LH_CHECK(secret.size() == kHelloSecretBytes, "a secret of {} bytes", secret.size());
  std::array<std::byte, kHelloBytes> bytes{};
  std::memcpy(bytes.data(), secret.data(), secret.size());
  Put(bytes, kHelloSecretBytes, rank);
  return bytes;
}

StatusOr<uint32_t> DecodeHello(std::span<const std::byte, kHelloBytes> bytes,
                               std::string_view secret) {
  const std::string_view told(reinterpret_cast<const char*>(bytes.data()), kHelloSecretBytes);
  if (!ConstantTimeEqual(told, secret)) {
    return absl::InvalidArgumentError("a hello with another secret came");
  }
  if (Get<uint32_t>(bytes, kHelloSecretBytes + 4) != 0) {
    return absl::InvalidArgumentError("a hello of another version came");
  }
  return Get<uint32_t>(bytes, kHelloSecretBytes);
}

std::array<std::byte, kHeaderBytes> EncodeHeader(const Header& header) {
  std::array<std::byte, kHeaderBytes> bytes{};
  Put(bytes, 0, kMagic);
  Put(bytes, 4, static_cast<uint8_t>(header.call.op));
  Put(bytes, 5, static_cast<uint8_t>(header.call.dtype));
  Put(bytes, 6, static_cast<uint8_t>(header.call.reduction));
  Put(bytes, 7, header.step);
  Put(bytes, 8, header.number);
  Put(bytes, 16, header.call.count);
  Put(bytes, 24, header.bytes);
  Put(bytes, 32, header.call.root);
  return bytes;
}

StatusOr<Header> DecodeHeader(std::span<const std::byte, kHeaderBytes> bytes) {
  const auto op = Get<uint8_t>(bytes, 4);
  const auto dtype = Get<uint8_t>(bytes, 5);
  const auto reduction = Get<uint8_t>(bytes, 6);
  if (Get<uint32_t>(bytes, 0) != kMagic || op > static_cast<uint8_t>(Op::kBarrier) ||
      dtype > static_cast<uint8_t>(Dtype::kBf16) ||
      reduction > static_cast<uint8_t>(Reduction::kMax) || Get<uint32_t>(bytes, 36) != 0) {
    return InvalidArgument(
        "expected the header of an exchange, got {:08x}, op {}, dtype {}, reduction {}",
        Get<uint32_t>(bytes, 0), op, dtype, reduction);
  }
  return Header{.call = {.op = static_cast<Op>(op),
                         .dtype = static_cast<Dtype>(dtype),
                         .reduction = static_cast<Reduction>(reduction),
                         .root = Get<uint32_t>(bytes, 32),
                         .count = Get<uint64_t>(bytes, 16)},
                .step = Get<uint8_t>(bytes, 7),
                .number = Get<uint64_t>(bytes, 8),
                .bytes = Get<uint64_t>(bytes, 24)};
}

}  // namespace longhaul::collective::host
