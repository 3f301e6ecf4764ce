// Reads and writes single objects on a hub of models and data sets, in S3, in Google Cloud Storage
// and on web servers. Addresses: address.h. Credentials and servers: settings.h.
//
//   LH_ASSIGN_OR_RETURN(const Settings settings, FindSettings());
//   const Store store(settings, {.hosts = RulesFor(settings.endpoints)});
//   LH_ASSIGN_OR_RETURN(const Address folder, ParseAddress("hf://org/model@main/"));
//   LH_ASSIGN_OR_RETURN(const Listing listing, store.List(folder));   // listing.at names a commit
//   for (const Entry& entry : listing.entries) {
//     LH_ASSIGN_OR_RETURN(const Address file, Inside(listing.at, entry.path));
//     LH_ASSIGN_OR_RETURN(const Version version, store.Look(file));
//     LH_RETURN_IF_ERROR(store.ReadToFile(file, version, folder_of_mine + entry.path));
//   }
//
// A Version is what an object was when Look saw it. All bytes that a call reads are of that
// version; an object that has changed since is kAborted. A worker that must not hold credentials
// gets a signed address, which it reads as a web address.
//
// Thread-safe. Calls block, and end at their deadline or soon after `given_up`. Requests that fail
// for a passing reason are sent again (http/retries.h); reads go on behind the last byte that came.
// Errors:
//   kInvalidArgument     not an address of an object, or a call that this kind of address lacks
//   kNotFound            there is no such object, bucket, repository or revision
//   kPermissionDenied    the server refuses, or the HostRules forbid the server
//   kAborted             the object is not the version that was asked for
//   kUnavailable         the server cannot be reached, or is in trouble, for longer than tried
//   kDataLoss            the server's answer is not of the expected form
//   kFailedPrecondition  a person has to act: a wrong certificate, a wrong region, no ranges
//   kCancelled, kDeadlineExceeded
// No message has a credential or the query of a signed address in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/http/client.h"
#include "base/http/retries.h"
#include "base/remote/address.h"
#include "base/remote/settings.h"
#include "base/status.h"

namespace longhaul::remote {

struct Version {
  uint64_t bytes = 0;
  // The server's ETag; without one, its Last-Modified; or "".
  std::string tag;
  friend bool operator==(const Version&, const Version&) = default;
};

// With this address anybody may read, or write, one object until it expires.
struct SignedAddress {
  std::string url;                    // a secret
  std::optional<absl::Time> expires;  // nullopt: not known, or never
  // What the object is now, where the service says so when it signs. Answers at `url` then have
  // tags of their own.
  std::optional<Version> version = {};
};

// Asks somebody who has credentials for a signed address to read an object of a hub, S3 or Google.
// nullopt: there are none for this service, so the service is asked as everybody may. Several
// threads call it at once.
using AskSigned = std::function<StatusOr<std::optional<SignedAddress>>(const Address& object,
                                                                       const http::Call& call)>;

struct Options {
  http::HostRules hosts = {};
  http::Patience patience = {};
  // Ranges of an object that are read, or parts that are written, at a time; and their bytes.
  int parallel = 8;
  uint64_t part_bytes = 16 << 20;
  // Objects of more bytes are written to S3 in parts.
  uint64_t largest_single_write = 64 << 20;
  absl::Duration connect_limit = absl::Seconds(15);
  absl::Duration silence_limit = absl::Seconds(60);
  // If not empty: objects of hubs, S3 and Google are read at the addresses that it returns. An
  // address that has expired, or that the server refuses, is asked for again.
  AskSigned ask_signed = {};
};

struct Entry {
  std::string path;  // relative to the folder that was listed
  uint64_t bytes = 0;
  std::string sha256;  // of large files on a hub; otherwise ""
  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Listing {
  Address at;  // the folder; on a hub with the commit as its revision, which never changes
  std::vector<Entry> entries;
};

// A file on its way to a server.
struct NewFile {
  std::string path;                  // relative to the folder
  std::span<const std::byte> bytes;  // for example of a MappedFile; must outlive the call
};

// What WriteAll does to a folder.
struct FolderChange {
  std::vector<NewFile> files;
  std::vector<std::string> removed;  // paths relative to the folder; those of `files` are written
  std::string summary;               // the title of a hub's commit
  // Gets the bytes sent so far, from any thread. May be empty.
  std::function<void(uint64_t bytes)> progress;
};

// Gets bytes of an object from several threads, no two of them at the same offset.
using Take = std::function<Status(uint64_t offset, std::span<const std::byte>)>;

class Store {
 public:
  Store(const Settings& settings, const Options& options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Lists all files below a folder, in the order of their paths. Web servers have no lists.
  StatusOr<Listing> List(const Address& folder, const http::Call& call = {}) const;

  StatusOr<Version> Look(const Address& object, const http::Call& call = {}) const;

  // Passes `count` bytes from `first` on to `take`. Ranges are read side by side.
  Status Read(const Address& object, const Version& version, uint64_t first, uint64_t count,
              const Take& take, const http::Call& call = {}) const;
  // Reads as many bytes as `into` holds.
  Status ReadInto(const Address& object, const Version& version, uint64_t first,
                  std::span<std::byte> into, const http::Call& call = {}) const;
  // Reads a small object whole, whatever its version. kFailedPrecondition: it is longer than
  // `limit`.
  StatusOr<std::string> ReadAll(const Address& object, uint64_t limit,
                                const http::Call& call = {}) const;
  // Writes the whole object to a file, which appears under its name whole or not at all.
  Status ReadToFile(const Address& object, const Version& version, const std::string& path,
                    const http::Call& call = {}) const;

  // Writes an object whole, over an older one. It appears whole or not at all. On a hub the write
  // is a commit on the branch that the address names. A web address must be signed for PUT.
  StatusOr<Version> Write(const Address& object, std::span<const std::byte> bytes,
                          const http::Call& call = {}) const;

  // Finds out whether WriteAll may write below this folder, as far as the server says without a
  // write: credentials, the repository or bucket, and the right to write there. On a hub makes a
  // repository that is missing, as a private one, and returns true if it did. kInvalidArgument: a
  // web address, or a commit of a hub.
  StatusOr<bool> PrepareWrites(const Address& folder, const http::Call& call = {}) const;
  // Writes files below a folder, over older ones, and removes others. On a hub all of it is one
  // commit on the branch that the address names: readers see all or nothing. In S3 and Google's
  // storage objects are first removed, then written in the given order, each whole.
  Status WriteAll(const Address& folder, const FolderChange& change,
                  const http::Call& call = {}) const;

  // Deletes an object. OK if there is none. S3 and Google alone.
  Status Delete(const Address& object, const http::Call& call = {}) const;

  // Returns an address to read this one object. S3 and Google: valid for `validity`, at most seven
  // days. Hub: where the hub redirects to, which expires when the hub says; has the version. A web
  // address is returned as it is.
  StatusOr<SignedAddress> SignRead(const Address& object, absl::Duration validity,
                                   const http::Call& call = {}) const;
  // Returns an address to write this one object by one PUT. S3 and Google alone.
  StatusOr<SignedAddress> SignWrite(const Address& object, absl::Duration validity) const;

 private:
  struct Parts;
  const std::unique_ptr<const Parts> parts_;
};

}  // namespace longhaul::remote
