// A stream of a GPU on which codecs queue their kernels. Plain types only, so that codecs need
// neither CUDA nor base/cuda.
//
//   const KernelQueue queue(stream);
//   return queue.Run(queue.kernels<FixedKernels>().encode, args, "queueing the encoder of fixed");
//
// Threads: any. The stream must outlive the queue. The work of a stream runs in the order of calls.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/status.h"
#include "codec/cuda/kernel_table.h"

namespace longhaul::cuda {
class Device;
class Stream;
}  // namespace longhaul::cuda

namespace longhaul::codec::cuda {

// Returns the kernels of a family. `Kernels` is the struct of the family's kernels.h. Ends the
// program if the table lacks the family.
template <class Kernels>
const Kernels& KernelsOf(const KernelTable& table) {
  const std::span families(table.families, table.family_count);
  const auto row =
      std::ranges::find(families, std::string_view(Kernels::kName),
                        [](const FamilyKernels& one) { return std::string_view(one.name); });
  LH_CHECK(row != families.end(), "the module has no kernels of {}", Kernels::kName);
  return *static_cast<const Kernels*>(row->kernels);
}

class KernelQueue {
 public:
  KernelQueue(const longhaul::cuda::Stream& stream);  // NOLINT(google-explicit-constructor)

  const KernelTable& table() const { return *table_; }
  template <class Kernels>
  const Kernels& kernels() const {
    return KernelsOf<Kernels>(*table_);
  }
  // Calls `kernel`, a function of the kernel table, which queues its work on the stream. Returns
  // kInternal if the CUDA runtime refuses. `doing` says in the message what failed. `args` may be
  // destroyed when Run returns.
  template <class Args>
  Status Run(int (*kernel)(int device, const Args* args, void* stream), const Args& args,
             std::string_view doing) const {
    return Check(kernel(index_, &args, stream_), doing);
  }
  // Queues the write of an empty tensor's blob, which is only a header. Errors: as for Run.
  Status WriteHeader(const HeaderArgs& header, void* blob_dev) const {
    return Check(
        table_->write_header(index_, &header, static_cast<unsigned char*>(blob_dev), stream_),
        "queueing an encoder");
  }

 private:
  Status Check(int code, std::string_view doing) const { return check_(*device_, code, doing); }

  const KernelTable* table_;
  const longhaul::cuda::Device* device_;
  Status (*check_)(const longhaul::cuda::Device& device, int code, std::string_view doing);
  int index_;
  void* stream_;
};

}  // namespace longhaul::codec::cuda
