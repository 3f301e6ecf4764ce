// The wire format of the sockets between ranks. Numbers are little-endian.
//
// The rank that dialled sends one hello:
//   32 bytes: the listener's secret | u32 rank | u32 zero
//
// Both ranks send a header before the bytes of every exchange. "Step" counts the exchanges of one
// call, from 0; "number" counts the calls of the communicator, from 1:
//   u32 "LHX1" | u8 op | u8 dtype | u8 reduction | u8 step | u64 number | u64 count
//   | u64 bytes that follow | u32 root | u32 zero
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/collective/core/call.h"

namespace longhaul::collective::host {

inline constexpr size_t kHelloSecretBytes = 32;
inline constexpr size_t kHelloBytes = kHelloSecretBytes + 8;
std::array<std::byte, kHelloBytes> EncodeHello(std::string_view secret, uint32_t rank);
// Returns the rank. kInvalidArgument: the secret is wrong, or the bytes are not a hello.
StatusOr<uint32_t> DecodeHello(std::span<const std::byte, kHelloBytes> bytes,
                               std::string_view secret);

struct Header {
  internal::Call call;
  uint8_t step = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;
};
inline constexpr size_t kHeaderBytes = 40;
std::array<std::byte, kHeaderBytes> EncodeHeader(const Header& header);
// kInvalidArgument: not a header. Does not check that the header matches the receiver's own call.
StatusOr<Header> DecodeHeader(std::span<const std::byte, kHeaderBytes> bytes);

}  // namespace longhaul::collective::host
