// Little-endian integers at any address. Pure functions.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

namespace longhaul::wire {

// Reads (GetLe) or writes (PutLe) an integer at the offset `at`. Not checked: `at` + sizeof(T) must
// not exceed the size of `bytes`.
template <std::unsigned_integral T>
T GetLe(std::span<const std::byte> bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[at + i]) << (8 * i)));
  }
  return value;
}

template <std::unsigned_integral T>
void PutLe(std::span<std::byte> bytes, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes[at + i] = static_cast<std::byte>(static_cast<unsigned char>(value >> (8 * i)));
  }
}

}  // namespace longhaul::wire
