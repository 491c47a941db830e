# Compiler launchers, linker and flags that hold for every target.
find_program(CCACHE ccache)
if(CCACHE)
  # Paths below the source folder are hashed as relative ones: a second clone, and a second preset, find the objects of the first.
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${launcher}")
endif()

find_program(MOLD mold)
find_program(LLD ld.lld)
if(MOLD)
  add_link_options(-fuse-ld=mold)
elseif(LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>  # designated initialisers leave defaults
                    $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>)
add_link_options(-Wl,-z,relro,-z,now -Wl,--gc-sections)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE> $<$<COMPILE_LANGUAGE:CXX>:-D_FORTIFY_SOURCE=3>)
endif()

if(SKEIN_SANITIZE)
  add_compile_options(-fsanitize=${SKEIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SKEIN_SANITIZE})
endif()
