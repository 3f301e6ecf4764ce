// Wraps every call into LibTorch: sets the number of threads, and turns exceptions into Status.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace longhaul::worker {

// Sets the intra-op threads of the calling thread and turns inter-op threads off. OpenMP keeps the
// number per thread, so each call sets it again.
void UseTorchThreads(uint32_t threads);

// Carries a Status through LibTorch's code, which passes exceptions only.
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

// Returns the Status of an exception, with the message "<what>: <LibTorch's text>". A StatusError
// has its own status; out of memory gives kResourceExhausted; else kInternal. IsDeviceLost is true
// if this process cannot use its GPU any more.
Status FromTorchException(std::string_view what, const std::exception& error);

// Returns the result of `body` (a Status or StatusOr; OK if it returns nothing), or the Status of
// the exception that it threw.
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
