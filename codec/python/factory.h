// The codec python (format.h).
#pragma once

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/python/format.h"

namespace longhaul::codec::python {

// Makes a codec that knows its sizes. Its Encode and Decode return kFailedPrecondition: Ready
// (host.h) makes one that has a process.
std::unique_ptr<const Codec> Create(const Params& params);

// Returns the entry for registry.cc.
Family Row();

}  // namespace longhaul::codec::python
