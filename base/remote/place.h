// How one kind of service is asked for its objects. Store (store.h) picks a place by the kind of an
// address, splits reads into ranges, and sends again what failed for a passing reason.
//
// Thread-safe. Methods send each request once, unless they say otherwise.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/http/client.h"
#include "base/remote/address.h"
#include "base/remote/settings.h"
#include "base/remote/store.h"
#include "base/status.h"

namespace longhaul::remote {

// What all places use. Outlives them.
struct Tools {
  Settings settings;
  Options options;
  http::Client client;

  // Calls `send` until it succeeds, or fails for good.
  Status Repeat(const http::Call& call, const std::function<Status()>& send) const;
};

// A GET of an object, to which the caller adds a range.
struct Source {
  http::Request request;
  // The tag that the answer must have. Empty: whichever tag the first answer has.
  std::string tag;
};

class Place {
 public:
  virtual ~Place() = default;

  // Sends requests again. Paths of entries are relative to the folder.
  virtual StatusOr<Listing> List(const Address& folder, const http::Call& call) const = 0;
  virtual StatusOr<Version> Look(const Address& object, const http::Call& call) const = 0;
  // kAborted: the object is another version by now.
  virtual StatusOr<Source> Find(const Address& object, const Version& version,
                                const http::Call& call) const = 0;
  // The server has refused what Find returned for this object. True: ask Find again.
  virtual bool Forget(const Address& object) const = 0;
  // Sends requests again.
  virtual StatusOr<Version> Write(const Address& object, std::span<const std::byte> bytes,
                                  const http::Call& call) const = 0;
  // Both send requests again. As in store.h. Unless overridden: kInvalidArgument.
  virtual StatusOr<bool> PrepareWrites(const Address& folder, const http::Call& call) const;
  virtual Status WriteAll(const Address& folder, const FolderChange& change,
                          const http::Call& call) const;
  // Sends requests again.
  virtual Status Delete(const Address& object, const http::Call& call) const;
  virtual StatusOr<SignedAddress> SignRead(const Address& object, absl::Duration validity,
                                           const http::Call& call) const = 0;
  virtual StatusOr<SignedAddress> SignWrite(const Address& object,
                                            absl::Duration validity) const = 0;
};

std::unique_ptr<Place> MakeHub(const Tools& tools);
// S3 or Google Cloud Storage.
std::unique_ptr<Place> MakeBuckets(Kind kind, const Tools& tools);
std::unique_ptr<Place> MakeWeb(const Tools& tools);
// Reads at the addresses of Options::ask_signed. All other calls go to `own`, and so do reads of
// objects for which there is no signed address.
std::unique_ptr<Place> MakeSigned(const Tools& tools, std::unique_ptr<const Place> own);
// Finds out what a web address has, by a GET: a signed address is good for one method alone. Errors
// name `object`.
StatusOr<Version> LookByGet(const Tools& tools, http::Request request, const Address& object,
                            const http::Call& call);

// For messages: "cannot read s3://bucket/key".
std::string Doing(std::string_view what, const Address& address);
// The error for an answer that is not 2xx, with the service's name for the error and what to do.
Status ErrorOf(const http::Answer& answer, const Address& address, std::string_view what);
// The version tag in an answer's headers: its ETag, or its Last-Modified, or "".
std::string TagOf(const http::Answer& answer);
// The number in the header "content-length". kDataLoss: there is none.
StatusOr<uint64_t> LengthOf(const http::Answer& answer, std::string_view what);
// The size of the whole object in the header "content-range" ("bytes 0-0/300000", "bytes */0").
std::optional<uint64_t> WholeSizeOf(const http::Answer& answer);

}  // namespace longhaul::remote
