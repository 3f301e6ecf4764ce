// A buffer of bytes, aligned to 64 bytes. The contents are uninitialized. Move-only: a moved-from
// object may only be assigned or destroyed. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace longhaul {

class AlignedBuffer {
 public:
  static constexpr std::align_val_t kAlignment{64};

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size)
      : data_(size > 0 ? static_cast<std::byte*>(::operator new(size, kAlignment)) : nullptr),
        size_(size) {}

  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }
  size_t size() const { return size_; }
  // Does nothing if the buffer has at least `size` bytes. Else replaces the buffer by a new one of
  // `size` bytes: the contents are lost, and earlier spans are invalid.
  void EnsureSize(size_t size) {
    if (size > size_) *this = AlignedBuffer(size);
  }

 private:
  struct Delete {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<std::byte, Delete> data_;
  size_t size_ = 0;
};

}  // namespace longhaul
