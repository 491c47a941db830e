# Compiler launchers, linker and flags that hold for every target.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE}")
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
add_link_options(-Wl,-z,relro,-z,now)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE> $<$<COMPILE_LANGUAGE:CXX>:-D_FORTIFY_SOURCE=3>)
endif()

if(SKEIN_SANITIZE)
  add_compile_options(-fsanitize=${SKEIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SKEIN_SANITIZE})
endif()
