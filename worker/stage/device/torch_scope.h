// Wraps every call into LibTorch: sets the number of threads, and turns exceptions into Status.
// Thread-safe.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace longhaul::worker {

// Sets the number of LibTorch's intra-op threads for the calling thread, and turns inter-op threads
// off. OpenMP has this number for each thread, so each call into LibTorch sets it again.
void UseTorchThreads(uint32_t threads);

// Carries a Status through LibTorch's code, which can pass on only exceptions.
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

// Turns an exception into a Status with the message "<what>: <LibTorch's text>". A StatusError
// gives the status that it carries. Out of memory gives kResourceExhausted, with advice in the
// message. All others give kInternal; then cuda::IsDeviceLost tells whether this process has lost
// its GPU.
Status FromTorchException(std::string_view what, const std::exception& error);

// Calls `body` with this number of threads. Returns its result, which is a Status, a StatusOr or
// nothing (OK). If it throws, returns the Status of the exception; `what` begins the message.
template <class Body>
auto CallTorch(std::string_view what, uint32_t threads, Body&& body) {
  if constexpr (std::is_void_v<decltype(body())>) {
    return CallTorch(what, threads, [&] {
      body();
      return absl::OkStatus();
    });
  } else {
    try {
      UseTorchThreads(threads);
      return body();
    } catch (const std::exception& error) {
      return decltype(body())(FromTorchException(what, error));
    }
  }
}

}  // namespace longhaul::worker
