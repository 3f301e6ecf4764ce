# Writes a C++ file with the texts of FILES behind the function FUNCTION, which HEADER declares:
# cmake -DOUTPUT=... -DHEADER=... -DFUNCTION=... -DNAMESPACE=... -DFILES=a,b -P EmbedAssets.cmake
string(REPLACE "," ";" files "${FILES}")
set(arrays "")
set(rows "")
set(number 0)
foreach(path IN LISTS files)
  get_filename_component(name "${path}" NAME)
  # In hexadecimal digits, because CMake's lists and strings have meanings for characters of a text.
  file(READ "${path}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "const unsigned char k${FUNCTION}${number}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(k${FUNCTION}${number}), sizeof(k${FUNCTION}${number}) - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"${HEADER}\"
namespace ${NAMESPACE} {
namespace {
${arrays}}  // namespace
std::span<const longhaul::Asset> ${FUNCTION}() {
  static const longhaul::Asset kAssets[] = {
${rows}  };
  return kAssets;
}
}  // namespace ${NAMESPACE}
")
