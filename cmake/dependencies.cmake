# Finds what tools/packages.txt lists. Small libraries are linked statically where the
# distribution ships archives, so that a built program moves between machines.
function(skein_static name header archive)
  find_path(${name}_INCLUDE "${header}" REQUIRED)
  find_library(${name}_ARCHIVE NAMES ${archive} REQUIRED)
  add_library(skein::${name} INTERFACE IMPORTED)
  target_include_directories(skein::${name} SYSTEM INTERFACE "${${name}_INCLUDE}")
  target_link_libraries(skein::${name} INTERFACE "${${name}_ARCHIVE}")
endfunction()

find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
skein_static(yaml yaml-cpp/yaml.h libyaml-cpp.a)
skein_static(sodium sodium.h libsodium.a)
skein_static(xxhash xxhash.h libxxhash.a)
skein_static(uring liburing.h liburing.a)
skein_static(pcre2 pcre2.h libpcre2-8.a)
skein_static(utf8proc utf8proc.h libutf8proc.a)
target_compile_definitions(skein::utf8proc INTERFACE UTF8PROC_STATIC)
skein_static(hwloc hwloc.h libhwloc.a)
# The archive names disks through libudev, which every Linux has and which comes without headers here.
find_library(UDEV_LIBRARY NAMES libudev.so.1 REQUIRED)
target_link_libraries(skein::hwloc INTERFACE "${UDEV_LIBRARY}" m Threads::Threads ${CMAKE_DL_LIBS})
find_path(JSON_INCLUDE nlohmann/json.hpp REQUIRED)

# fmt has no archive in Debian; header-only inside core's own objects would cost every file, so it is shared.
find_library(FMT_LIBRARY fmt REQUIRED)
add_library(skein::fmt INTERFACE IMPORTED)
target_link_libraries(skein::fmt INTERFACE "${FMT_LIBRARY}")

if(SKEIN_TORCH)
  include(torch_wheel)
endif()
