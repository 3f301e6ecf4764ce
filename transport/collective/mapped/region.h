// Memory shared by the ranks of a group, which are threads or processes. Each rank makes one region
// of memory, and every rank maps all regions.
#pragma once

#include <cstddef>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/status.h"
#include "transport/collective/member.h"

namespace longhaul::collective::mapped {

// Pages of shared memory; unmapped on destruction. Move-only.
class SharedPages {
 public:
  SharedPages() = default;
  SharedPages(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&& other) noexcept;
  ~SharedPages();
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// One rank's region, with its addresses in this process and on this device. `at` is an offset in
// bytes.
struct Region {
  SharedPages pages;
  cuda::MappedMemory mapped;  // released before the pages

  std::byte* host(uint64_t at) const { return pages.data() + at; }
  std::byte* dev(uint64_t at) const { return mapped.data_dev() + at; }
};

// Makes this rank's region, zeroed, and maps the regions of all ranks. Returns them by rank. All
// ranks call it with the same `bytes`, which must be a multiple of the page size. Errors are those
// of mapped::Create (factory.h).
StatusOr<std::vector<Region>> ShareRegions(Member& member, const cuda::Device& device, size_t bytes,
                                           Deadline deadline);

}  // namespace longhaul::collective::mapped
