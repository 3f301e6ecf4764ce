#include "base/remote/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>
#include <vector>

#include "base/printable.h"

namespace longhaul::remote {
namespace {

// What all ranges of one read share.
class Reading {
 public:
  Reading(const Place& place, const Tools& tools, const Address& object, const Version& version,
          const Take& take)
      : place_(place), tools_(tools), object_(object), version_(version), take_(take) {}

  Status ReadRange(uint64_t first, uint64_t end, const http::Call& call) {
    http::Retries retries(tools_.options.patience, call);
    // Places whose addresses expire may refuse one and give another, but not for ever.
    int refusals = 0;
    while (first < end) {
      const uint64_t before = first;
      Status status = ReadOnce(first, end, call);
      if (first > before) {
        retries.Progress();
        refusals = 0;
      }
      // What breaks behind the last byte does not matter.
      if (first == end && (status.ok() || absl::IsUnavailable(status))) return absl::OkStatus();
      if (absl::IsPermissionDenied(status) && refusals++ == 0 && place_.Forget(object_)) continue;
      if (status.ok()) {
        status = Unavailable("{}: expected bytes up to {}, got bytes up to {}",
                             Doing("cannot read", object_), end, first);
      }
      LH_RETURN_IF_ERROR(retries.Wait(status));
    }
    return absl::OkStatus();
  }

 private:
  // Moves `first` behind the bytes that came.
  Status ReadOnce(uint64_t& first, uint64_t end, const http::Call& call) {
    LH_ASSIGN_OR_RETURN(Source source, place_.Find(object_, version_, call));
    http::Request& request = source.request;
    request.headers.push_back(fmt::format("Range: bytes={}-{}", first, end - 1));
    // A weak tag matches nothing.
    if (source.tag.starts_with('"')) request.headers.push_back("If-Match: " + source.tag);
    const http::Receiver receiver{
        .begin = [&](const http::Answer& answer) { return Check(answer, source.tag, first, end); },
        .take = [&](std::string_view piece) -> Status {
          if (piece.size() > end - first) {
            return DataLoss("{}: expected {} bytes, got more", Doing("cannot read", object_),
                            end - first);
          }
          LH_RETURN_IF_ERROR(take_(first, std::as_bytes(std::span(piece))));
          first += piece.size();
          return absl::OkStatus();
        }};
    LH_ASSIGN_OR_RETURN(const http::Answer answer, tools_.client.Send(request, call, &receiver));
    if (answer.ok()) return absl::OkStatus();
    if (answer.code == 412) return Changed("another tag");
    if (answer.code == 416) {
      const auto whole = WholeSizeOf(answer);
      return Changed(whole ? fmt::format("{} bytes", *whole) : "fewer bytes");
    }
    return ErrorOf(answer, object_, "cannot read");
  }

  // Before a byte of the body is taken.
  Status Check(const http::Answer& answer, const std::string& wanted, uint64_t first,
               uint64_t end) {
    const std::string tag = TagOf(answer);
    {
      const std::lock_guard lock(mutex_);
      std::string& expected = wanted.empty() ? first_tag_ : expected_tag_;
      if (expected.empty()) expected = wanted.empty() ? tag : wanted;
      if (tag != expected) return Changed(fmt::format("the tag {}", Printable(tag, 100)));
    }
    const auto whole = WholeSizeOf(answer);
    if (answer.code == 200 && first == 0 && end == version_.bytes) {
      LH_ASSIGN_OR_RETURN(const uint64_t bytes, LengthOf(answer, Doing("cannot read", object_)));
      return bytes == end ? absl::OkStatus() : Changed(fmt::format("{} bytes", bytes));
    }
    if (answer.code != 206) {
      return FailedPrecondition(
          "{}: the server gives whole files alone, and ranges are needed; put the file on a server "
          "that gives ranges",
          Doing("cannot read", object_));
    }
    const std::string& range = answer.Header("content-range");
    if (!range.starts_with(fmt::format("bytes {}-{}/", first, end - 1))) {
      return DataLoss("{}: expected bytes {}-{}, the server says '{}'",
                      Doing("cannot read", object_), first, end - 1, Printable(range, 100));
    }
    if (whole && *whole != version_.bytes) return Changed(fmt::format("{} bytes", *whole));
    return absl::OkStatus();
  }

  Status Changed(std::string_view now) const {
    return Aborted(
        "{} has changed: expected {} bytes with the tag {}, the server now has {}; look at it "
        "again",
        ShownAddress(object_), version_.bytes, Printable(version_.tag, 100), now);
  }

  const Place& place_;
  const Tools& tools_;
  const Address& object_;
  const Version& version_;
  const Take& take_;
  std::mutex mutex_;
  // Tags that this read goes by: the one that Find named, and the first one of a server for which
  // Find named none.
  std::string expected_tag_, first_tag_;
};

}  // namespace

Status ReadRanges(const Place& place, const Tools& tools, const Address& object,
                  const Version& version, uint64_t first, uint64_t count, const Take& take,
                  const http::Call& call) {
  if (first > version.bytes || count > version.bytes - first) {
    return InvalidArgument("{}: expected a range inside its {} bytes, got {} bytes from {} on",
                           Doing("cannot read", object), version.bytes, count, first);
  }
  if (count == 0) return absl::OkStatus();
  const uint64_t part = std::max<uint64_t>(tools.options.part_bytes, 1);
  // Once before the threads begin, each of which would ask a hub for the same address.
  if (count > part) {
    LH_RETURN_IF_ERROR(
        tools.Repeat(call, [&] { return place.Find(object, version, call).status(); }));
  }
  Reading reading(place, tools, object, version, take);
  return SideBySide((count - 1) / part + 1, tools.options.parallel, call,
                    [&](uint64_t number, const http::Call& inner) {
                      const uint64_t begin = first + number * part;
                      return reading.ReadRange(begin, std::min(begin + part, first + count), inner);
                    });
}

Status SideBySide(uint64_t count, int threads, const http::Call& call,
                  const std::function<Status(uint64_t number, const http::Call& call)>& work) {
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> has_failed = false;
  std::mutex mutex;
  Status first_error;
  http::Call inner = call;
  // The caller's function is for one thread at a time.
  inner.given_up = [&] {
    if (has_failed) return true;
    if (!call.given_up) return false;
    const std::lock_guard lock(mutex);
    return call.given_up();
  };
  const auto run = [&] {
    while (!has_failed) {
      const uint64_t number = next++;
      if (number >= count) return;
      const Status status = work(number, inner);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      if (!has_failed) first_error = status;
      has_failed = true;
    }
  };
  const auto wanted = std::min<uint64_t>(count, static_cast<uint64_t>(std::max(threads, 1)));
  std::vector<std::jthread> others;
  for (uint64_t i = 1; i < wanted; ++i) others.emplace_back(run);
  run();
  others.clear();
  return first_error;
}

}  // namespace longhaul::remote
