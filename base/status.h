// Modules of this project report errors by absl::Status. An exception of a library becomes a Status
// where the library is called (FromException). The code of a status tells the caller what to do:
//
//   kUnavailable         retry this call
//   kAborted             this attempt at a run is over; a higher layer restarts the run
//   kFailedPrecondition  a person has to act
//   kInvalidArgument     bad configuration or bad bytes
//   kDataLoss            a checksum does not match
//   kResourceExhausted   a limit was reached; the message names it
//   kCancelled           the object was closed while the call was waiting
//
// A message names the expected and the actual value, and what to do. All functions are thread-safe.
#pragma once

#ifndef __CUDACC__  // nvcc refuses fmt's constexpr functions; kernels return no statuses
#include <fmt/core.h>
#endif

#include <exception>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace longhaul {

using absl::Status;
using absl::StatusOr;

// Returns the message as std::string_view. In Debian's Abseil, absl::string_view is a separate type
// that neither fmt nor std::string_view accepts.
inline std::string_view Message(const Status& status) {
  return {status.message().data(), status.message().size()};
}

#ifndef __CUDACC__
// InvalidArgument("expected {}, got {}", a, b) returns a status with the code kInvalidArgument and
// the formatted message. The other functions do the same for the codes that they are named after.
#define LH_STATUS_FUNCTION(code)                                                  \
  template <class... Values>                                                      \
  Status code(fmt::format_string<Values...> text, Values&&... values) {           \
    return absl::code##Error(fmt::format(text, std::forward<Values>(values)...)); \
  }
LH_STATUS_FUNCTION(InvalidArgument)
LH_STATUS_FUNCTION(FailedPrecondition)
LH_STATUS_FUNCTION(Unavailable)
LH_STATUS_FUNCTION(NotFound)
LH_STATUS_FUNCTION(DataLoss)
LH_STATUS_FUNCTION(ResourceExhausted)
LH_STATUS_FUNCTION(Internal)
LH_STATUS_FUNCTION(DeadlineExceeded)
LH_STATUS_FUNCTION(PermissionDenied)
LH_STATUS_FUNCTION(Aborted)
LH_STATUS_FUNCTION(AlreadyExists)
LH_STATUS_FUNCTION(Unauthenticated)
#undef LH_STATUS_FUNCTION
#endif

// Returns `status` with "<context>: " before its message, and with the same code and payloads. OK
// stays OK.
Status Annotate(const Status& status, std::string_view context);

// Returns kInternal with the message "<what>: <exception's message>".
Status FromException(std::string_view what, const std::exception& error);

// Returns a status with the code that fits `error_number`, a value of errno (ENOENT: kNotFound),
// and the message "<what>: <strerror>". 0 gives OK.
Status FromErrno(std::string_view what, int error_number);

}  // namespace longhaul

// Evaluates `expression`, a Status. If it is an error, returns it from the current function.
#define LH_RETURN_IF_ERROR(expression)                                              \
  do {                                                                              \
    if (::absl::Status lh_status = (expression); !lh_status.ok()) return lh_status; \
  } while (false)

#define LH_CONCAT_INNER(a, b) a##b
#define LH_CONCAT(a, b) LH_CONCAT_INNER(a, b)
// LH_ASSIGN_OR_RETURN(auto file, ReadFile(path)): evaluates a StatusOr. Returns its error from the
// current function, or initializes `file` with its value. Several statements: not for an `if`
// without braces.
#define LH_ASSIGN_OR_RETURN(declaration, expression) \
  LH_ASSIGN_OR_RETURN_INNER(LH_CONCAT(lh_status_or_, __LINE__), declaration, expression)
#define LH_ASSIGN_OR_RETURN_INNER(variable, declaration, expression) \
  auto variable = (expression);                                      \
  if (!variable.ok()) return std::move(variable).status();           \
  declaration = *std::move(variable)
