#include "codec/cuda/kernel_queue.h"

#include "base/cuda/device.h"
#include "base/cuda/stream.h"

namespace longhaul::codec::cuda {

KernelQueue::KernelQueue(const longhaul::cuda::Stream& stream)
    : table_(stream.device().table().codec_kernels),
      device_(&stream.device()),
      check_([](const longhaul::cuda::Device& device, int code, std::string_view doing) {
        return device.Check(code, doing);
      }),
      index_(stream.device().index()),
      stream_(stream.handle()) {}

}  // namespace longhaul::codec::cuda
