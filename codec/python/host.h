// Lets codecs of the family python run. A codec that ParseCodec made knows its sizes alone, because
// coordinators, the CLI and strangers' run files name it, too. A program that may run it has a Host
// with the modules that its owner permits.
//
//   const python::Host host({.modules = {"my_codec"}, .python = "python3", .main = ".../main.py"});
//   LH_ASSIGN_OR_RETURN(const auto ready, python::Ready(&host, codec));
//
// Threads: a Host is immutable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "codec/codec.h"

namespace longhaul::codec::python {

struct HostOptions {
  std::vector<std::string> modules;  // "my_codec"; a module permits no other below it
  std::string python;                // the interpreter
  std::string main;                  // path of deploy/codec/main.py
  // A class that takes longer is ended. Importing may load much from a slow disk.
  absl::Duration start_limit = absl::Seconds(60);
  absl::Duration call_limit = absl::Seconds(30);
};

class Host {
 public:
  explicit Host(HostOptions options) : options_(std::move(options)) {}
  const HostOptions& options() const { return options_; }

 private:
  const HostOptions options_;
};

// Returns the module of a codec of this family; "": `codec` is of another family.
std::string ModuleOf(const Codec& codec);

// Returns `codec` itself unless its family is python. Else starts a process of its own for the
// codec, and returns a codec that encodes and decodes in it. The process ends with the returned
// codec. The object of the class may have state: then one codec object must see the tensors of one
// direction of one edge, and nothing else.
//
// `codec` is not null. `host`: null permits no module. kFailedPrecondition: the module is not
// permitted; the process does not start; the class cannot be imported or made.
StatusOr<std::shared_ptr<const Codec>> Ready(const Host* host, std::shared_ptr<const Codec> codec);

}  // namespace longhaul::codec::python
