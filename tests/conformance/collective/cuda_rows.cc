// NCCL and exchanges through host memory, and what compresses over them, on as many GPUs as this
// process sees.
#include <fmt/core.h>

#include <algorithm>

#include "base/cuda/memory.h"
#include "base/cuda/module.h"
#include "base/cuda/stream.h"
#include "tests/conformance/collective/compressed.h"
#include "tests/conformance/collective/group.h"
#include "transport/collective/exact/factory.h"
#include "transport/collective/mapped/factory.h"
#include "transport/collective/nccl/factory.h"
#include "transport/collective/switcher/factory.h"

namespace longhaul::collective {
namespace {

// Null where there is none: then this program says so before any test (lh_gpu_test).
const cuda::DeviceTable* Table() {
  static const cuda::DeviceTable* const table = [] {
    const StatusOr<const cuda::DeviceTable*> loaded = cuda::LoadModule(cuda::DefaultModulePath());
    return loaded.ok() ? *loaded : nullptr;
  }();
  return table;
}

class CudaMemory final : public Memory {
 public:
  CudaMemory(const cuda::Device& device, cuda::Stream stream)
      : device_(device), stream_(std::move(stream)) {}

  const cuda::Device& device() const { return device_; }
  StatusOr<void*> Allocate(size_t bytes) override {
    LH_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer,
                        cuda::DeviceBuffer::Create(device_, std::max<size_t>(bytes, 16)));
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data_dev();
  }
  Status Upload(std::span<const std::byte> from, void* to) override {
    return Copy(to, from.data(), from.size());
  }
  Status Download(const void* from, std::span<std::byte> to) override {
    return Copy(to.data(), from, to.size());
  }
  Queue queue() override { return {stream_.handle()}; }

 private:
  Status Copy(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    LH_RETURN_IF_ERROR(stream_.Copy(to, from, bytes));
    LH_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(device_));
    LH_RETURN_IF_ERROR(done.Record(stream_));
    return done.Await(Deadline::After(kPatience));
  }

  const cuda::Device device_;
  cuda::Stream stream_;
  std::vector<cuda::DeviceBuffer> buffers_;
};

StatusOr<std::unique_ptr<Memory>> MemoryOf(uint32_t rank) {
  LH_ASSIGN_OR_RETURN(const cuda::Device device, cuda::Device::Open(Table(), rank));
  LH_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(device));
  return std::make_unique<CudaMemory>(device, std::move(stream));
}

Backend Row(std::string name) {
  int devices = 0;
  if (Table() == nullptr || Table()->device_count(&devices) != 0) devices = 0;
  return {.name = std::move(name),
          .max_ranks = static_cast<uint32_t>(devices),
          .names_mismatches = false,
          .keeps_nans = false,
          .names_late_ranks = false,
          .memory = MemoryOf};
}

Backend MappedRow(std::string name) {
  Backend row = Row(std::move(name));
  row.max_ranks = std::min(row.max_ranks, mapped::kMostRanks);
  row.keeps_nans = true;
  return row;
}

// Takes zip for all that zip may be taken for, and its ranks agree every few calls.
StatusOr<std::unique_ptr<Communicator>> MakeSwitcher(std::shared_ptr<Member> member, Memory& memory,
                                                     const RankSettings& settings,
                                                     Deadline deadline) {
  const cuda::Device& device = static_cast<CudaMemory&>(memory).device();
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> native,
                      nccl::Create(member, device, {}, deadline));
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> zipped,
                      zip::Create(native, &device, {.call_limit = settings.call_limit}));
  return switcher::Create(
      std::move(member), std::move(native), {{"zip", std::move(zipped)}}, &device,
      {.margin = -0.99, .agree_every = 3, .probe_limit = absl::ZeroDuration()}, deadline);
}

}  // namespace

const std::vector<Backend>& Backends() {
  static const auto* const backends = [] {
    auto* const rows = new std::vector<Backend>;
    Backend nccl = Row("nccl");
    nccl.rank_order = false;
    nccl.create = [](const std::shared_ptr<Member>& member, Memory& memory, const RankSettings&,
                     Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
      return nccl::Create(member, static_cast<CudaMemory&>(memory).device(), {}, deadline);
    };
    for (const Compression& compression : Compressions(/*pieces=*/true)) {
      Backend row = Row(compression.name + "_over_nccl");
      // Beside bf16, sums are NCCL's, which has no choice of order with two ranks.
      row.rank_order = compression.sum_error == 0 && row.max_ranks <= 2;
      row.sum_error = compression.sum_error;
      row.copy_error = compression.copy_error;
      row.create = [compression](const std::shared_ptr<Member>& member, Memory& memory,
                                 const RankSettings& settings,
                                 Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
        const cuda::Device& device = static_cast<CudaMemory&>(memory).device();
        LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> below,
                            nccl::Create(member, device, {}, deadline));
        return compression.create(std::move(below), &device, settings.call_limit);
      };
      rows->push_back(std::move(row));
    }
    rows->insert(rows->begin(), std::move(nccl));
    rows->push_back(Row("exact_over_nccl"));
    rows->back().create = [](const std::shared_ptr<Member>& member, Memory& memory,
                             const RankSettings& settings,
                             Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
      const cuda::Device& device = static_cast<CudaMemory&>(memory).device();
      LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> below,
                          nccl::Create(member, device, {}, deadline));
      return exact::Create(std::move(below), &device, {.call_limit = settings.call_limit});
    };
    rows->push_back(MappedRow("mapped"));
    rows->back().create = [](const std::shared_ptr<Member>& member, Memory& memory,
                             const RankSettings&,
                             Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
      return mapped::Create(std::move(member), static_cast<CudaMemory&>(memory).device(), deadline);
    };
    for (const Compression& compression : Compressions(/*pieces=*/true)) {
      // All ways of zip to learn sizes are one here.
      if (compression.name != "zip_static_first" && compression.name != "zip_in_pieces" &&
          compression.sum_error == 0) {
        continue;
      }
      Backend row = MappedRow(compression.name + "_over_mapped");
      row.sum_error = compression.sum_error;
      row.copy_error = compression.copy_error;
      row.rank_order = compression.sum_error == 0;
      row.create = [compression](const std::shared_ptr<Member>& member, Memory& memory,
                                 const RankSettings& settings,
                                 Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
        const cuda::Device& device = static_cast<CudaMemory&>(memory).device();
        LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> below,
                            mapped::Create(std::move(member), device, deadline));
        return compression.create(std::move(below), &device, settings.call_limit);
      };
      rows->push_back(std::move(row));
    }
    Backend switcher = Row("switcher_over_nccl");
    switcher.rank_order = false;
    switcher.create = MakeSwitcher;
    rows->push_back(std::move(switcher));
    return rows;
  }();
  return *backends;
}

}  // namespace longhaul::collective
