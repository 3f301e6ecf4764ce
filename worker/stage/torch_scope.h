// How every call into LibTorch is made: with the stage's number of threads, and with its exceptions
// turned into Status.
#ifndef LONGHAUL_WORKER_STAGE_TORCH_SCOPE_H_
#define LONGHAUL_WORKER_STAGE_TORCH_SCOPE_H_

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace longhaul::worker {

// Intra-op threads of the calling thread (OpenMP keeps the number per thread, so each call sets it
// where it differs) and no inter-op threads.
void UseTorchThreads(uint32_t threads);

// A Status on its way through LibTorch, which knows exceptions alone.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)), words_(Message(status_)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return words_.c_str(); }

 private:
  Status status_;
  std::string words_;
};
inline void ThrowIfError(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

// A StatusError's; kResourceExhausted where memory ran out, else kInternal; "<what>: <LibTorch's
// words>". IsDeviceLost where this process cannot use its GPU any more.
Status FromTorchException(std::string_view what, const std::exception& error);

// What `body` gives (a Status or StatusOr), or the Status of the exception that it threw.
template <class Body>
auto CallTorch(std::string_view what, uint32_t threads, Body&& body) -> decltype(body()) {
  try {
    UseTorchThreads(threads);
    return body();
  } catch (const std::exception& error) {
    return FromTorchException(what, error);
  }
}

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_TORCH_SCOPE_H_
